"""What page, report and status show: asked of log and modeler in one place, and put into words in one place."""
