"""Other models of scaling behind one interface: simple laws, Extra-P, the papers' models."""
