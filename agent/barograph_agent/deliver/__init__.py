"""From rows on this node to the collector: spool, link, keys and credentials."""
