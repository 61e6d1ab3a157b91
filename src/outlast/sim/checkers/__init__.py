"""One file per group of promises; a checker looks at each commit, each answer, and at the end."""
