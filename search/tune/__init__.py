"""Tuning: what is measured, and which plan is kept."""
