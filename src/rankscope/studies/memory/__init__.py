"""Memory against rule: how many distinct batches does it take until an encoder learns the task?"""
