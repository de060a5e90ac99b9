"""How long a run takes at a scale: laws, the papers' models, and the predictor that chooses among them."""
