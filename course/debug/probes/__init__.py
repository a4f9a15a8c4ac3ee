"""What the doctor looks at: one module per idea, each with a few probes on what was observed."""
