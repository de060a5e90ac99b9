"""`barograph bench`: how much a collector takes."""
