"""What can be computed of "Benefits of Rank in Attention Layers": bounds, constructions, predictions.

Pure functions of numbers. Nothing here sees a model, a training run or a measurement.
"""
