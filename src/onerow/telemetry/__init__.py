"""What onerow tells other systems about itself: Prometheus metrics, OpenTelemetry traces, Sentry events."""
