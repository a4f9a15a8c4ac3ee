"""What the doctor looks at: one module an idea, each a few probes on what was observed."""
