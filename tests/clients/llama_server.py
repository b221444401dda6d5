"""llama.cpp's server on 127.0.0.1, as people run it: python llama_server.py MODEL.gguf PORT."""

import sys
import time

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
params.n_parallel = 2
params.n_ctx = 4096 * params.n_parallel
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
server = xllamacpp.Server(params)
time.sleep(10**6)
