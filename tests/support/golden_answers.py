"""The demo model's golden answers."""
import json
import pathlib
import subprocess

# bfloat16's answers depend on the order of sums, so on the instruction set or the GPU, where
# float32's choice of a token was closer than this.
BFLOAT16_CLEAR_MARGIN = 0.1
# Distance of neighboring bfloat16 numbers at the size of the demo model's logits.
BFLOAT16_STEP = 0.25


def golden_cases(model, dtype):
    return json.loads((pathlib.Path(model) / "golden_text.json").read_text())[dtype]


def machine_cases(atom, model, dtype, device="auto"):
    """The golden cases as this machine has to answer them. In bfloat16, a question with a
    choice that is not clear gets the answer of `atom generate`, which may part from the golden one
    at a choice that bfloat16 cannot tell, and nowhere else."""
    cases = golden_cases(model, dtype)
    if dtype != "bfloat16":
        return cases
    margins = {case["question"]: case["min_margin"] for case in golden_cases(model, "float32")}
    return [case if margins[case["question"]] >= BFLOAT16_CLEAR_MARGIN
            else _own_answer(atom, model, case, device) for case in cases]


def _own_answer(atom, model, case, device):
    result = subprocess.run(
        [atom, "generate", str(model), "--chat", "--json", "--device", device, "--dtype",
         "bfloat16", "--max-tokens", "160", "--logprobs", "2", "--", case["question"]],
        check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=300)
    answer = json.loads(result.stdout)["outputs"][0]
    for own, golden, entry in zip(answer["token_ids"], case["output_ids"], answer["logprobs"]):
        if own == golden:
            continue
        of_token = {top["token_id"]: top["logprob"] for top in entry["top"]}
        if golden not in of_token or of_token[own] - of_token[golden] >= BFLOAT16_STEP:
            raise AssertionError(f"{case['question']}: {own} instead of {golden}, by {entry}")
        return {**case, "output_ids": answer["token_ids"], "text": answer["text"]}
    if answer["token_ids"] != case["output_ids"]:
        raise AssertionError(f"{case['question']}: {answer['token_ids']} ends elsewhere")
    return case
