"""Who applies a scaling decision: Auto Scaling groups, ECS services, a Lambda function, and an HTTP server for KEDA.

The decision itself is `core.scaling.decide`, its signal `engine.views.scaling`. `onerow worker --processes 1..8` scales
processes of one host and needs nothing from here.
"""

from onerow.scaling.scaler import Scaler, Target

__all__ = ["Scaler", "Target"]
