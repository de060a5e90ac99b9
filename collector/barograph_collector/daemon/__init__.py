"""What every daemon shares: options, logs, sd_notify, reload, the metrics endpoint, the runner."""
