"""Back-test of models that predict runtimes from features."""
