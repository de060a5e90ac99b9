"""What the modeler shows: metrics, and `/predict`."""
