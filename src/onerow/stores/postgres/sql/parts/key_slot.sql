       key_slot = (SELECT key_slots FROM chosen)[array_position((SELECT row_locations FROM chosen), ours.ctid)]
