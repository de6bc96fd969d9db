class Isolated:
    def __init__(self, keeper, grace): ...
    def __call__(self, attempt):
        raise NotImplementedError
