"""One of several programs that write to the same file: add, operate on and pull tasks, then print how many were added."""

import random
import sys
import time

from tests.faults.app import queue, quick

if __name__ == "__main__":
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    dice = random.Random(seed)
    added = 0
    until = time.monotonic() + seconds
    queue.publish(quick)
    while time.monotonic() < until:
        match dice.randrange(4):
            case 0:
                queue.add(quick, seed, unique=f"{seed}-{added}")
                added += 1
            case 1:
                count = dice.randrange(1, 50)
                queue.add_many(quick, [seed] * count)
                added += count
            case 2:
                with queue.claim(quick, "first", limit=5) as leases:
                    for lease in leases:
                        lease.complete(lease.payload + 1)
            case 3:
                task = queue.add(quick, seed, run_at="2035-01-01T00:00:00Z")
                queue.set_priority(task.task_id, dice.randrange(-5, 5))
                queue.cancel(task.task_id)
                added += 1
    print(added)
