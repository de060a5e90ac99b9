"""Parts of every daemon: options, logs, sd_notify, reload, the metrics endpoint, the runner."""
