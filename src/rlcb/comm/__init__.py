"""What crosses between processes: sums, weights, rollouts, heartbeats; and how processes are started and watched."""
