"""Other models of scaling: simple laws, Extra-P, the papers' models in one shape."""
