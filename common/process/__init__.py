"""The parts that every process of the engine needs: arguments, signals, threads, HTTP, Java."""
