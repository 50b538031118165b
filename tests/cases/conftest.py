"""One thread: these tests run beside others, and tiny products lose more to waiting threads than they gain."""

import torch

torch.set_num_threads(1)
