"""Tests the model of cuda/predict on known counts and on the emulator's, and tests/cuda/sass on a short loop. Usage: tools.py ROOT PROGRAM"""
import runpy
import sys

predict, sass = runpy.run_path(sys.argv[1] + "/cuda/predict"), runpy.run_path(sys.argv[1] + "/tests/cuda/sass")

assert predict["at_length"]([3 * n * n + 5 * n + 7 for n in predict["SAMPLES"]], 8192) == 3 * 8192**2 + 5 * 8192 + 7
# 2730 and 1000 clocks bind, of tensor cores and of shared memory; 16 special functions take one, and so do 128 others, or four shuffles.
sample = {"attention of heads": [2730**2 / 4096, 1000, 26, 26, 16, 128, 4], "gradient of keys": [0, 1000] + 5 * [0], "sums of rows": [0, 0, 26] + 4 * [0]}
found = [(round(ms / (12 * 16 / 132 / 1.755e9 * 1e3)), *rest) for ms, *rest in predict["predicted"]([sample] * 3, 2048, 1, {})]
assert found == [(2733, 2730 / 2733, "tensor"), (1001, 1000 / 1001, "shared")], found
mix = {"logits of the mix": [2048, 1000] + 5 * [128], "gradient of the mix": [0, 1000] + 5 * [128]}
issued, other = predict["predicted"]([mix] * 3, 2048, 12, {"logits of the mix": 4})
assert round(issued[0] / (16 / 132 / 1.755e9 * 1e3)) == 4 * 2048 and issued[1:] == (1, "issue"), issued  # what the emulator counts is among them
assert round(other[0] / (16 / 132 / 1.755e9 * 1e3)) == 1000 + 128 / 16 + 33 * 128 / 128 and other[2] == "shared", other
assert all(1 < clocks < 8 for mix in ("ONE_TAP", "THREE_TAPS") for clocks in predict["issue_of"](predict[mix]).values())
assert set(predict["measured"]()) == {(length, scheme) for length in predict["LENGTHS"] for scheme in predict["SCHEMES"] if "DAPE" not in scheme}
products = predict["counted"](sys.argv[2], 128, "none")["attention of heads"][0]
assert products == (1 + 1 + 2 + 2) * 128, products  # for the tiles that each warp sees

SASS = """Function : planted
 /*0000*/ F2I R1, R2 ; /*0008*/ STG.E.128 [R2], R4 ; /*0010*/ @!PT LDS RZ, [RZ] ; /*0020*/ HMMA.16816.F32 R0, R1, R2, R0 ; /*0030*/ BRA.DIV UR4, 0x90 ; /*0040*/ @P0 BRA 0x70 ;
 /*0050*/ MUFU.EX2 R1, R1 ; /*0060*/ LDL R3, [R1] ; /*0068*/ LDS R4, [R1] ;
 /*0070*/ @P1 BRA 0x10 ; /*0080*/ EXIT ; /*0090*/ STL [R1], R3 ; /*00a0*/ BRA 0x40 ;"""
blocks = sass["kernels"](SASS)["planted"]
assert [blocks[0].counts[op] for op in sass["STORES"]] == [1, 0]
assert sass["ways"](blocks, (2, 0, 2), (0, 0)) == {(1, 0, 0): 3, (1, 0, 1): 5}
assert sass["ways"](blocks, (2, 0, 2), (1, 0)) == {(1, 0, 1): 5}  # the path that reads shared memory
assert [op for at, block in blocks.items() for op in sass["SLOW"] if block.counts[op] and sass["is_in_loop"](blocks, at)] == ["LDL"]
