"""Back-tests and the papers' models. No daemon imports them."""
