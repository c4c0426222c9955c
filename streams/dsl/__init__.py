"""Streams, tables and windows, compiled to a topology; `streams` exports what users need."""
