"""`barograph backtest`: accuracy of bands, alerts and predictions on past measurements."""
