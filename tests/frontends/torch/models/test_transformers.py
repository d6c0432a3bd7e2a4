"""Models of Hugging Face Transformers, small and random: patched, they say and learn the same."""

from dataclasses import replace

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Qwen2Config,
)

import tiercel
from tiercel.frontends.numpy import packed

SMALL = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
ENDS = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}

#: name -> (configuration, linear layers of a block that are patched)
MODELS = {
    "llama": (LlamaConfig(**SMALL, **ENDS), 7),
    "qwen2": (Qwen2Config(**SMALL, **ENDS), 7),
    "mistral": (MistralConfig(**SMALL, **ENDS), 7),
    "mixtral": (MixtralConfig(**SMALL, **ENDS, num_local_experts=2), 4),
    "gpt2": (GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, **ENDS), 4),
}


@pytest.fixture(params=MODELS)
def model(request) -> torch.nn.Module:
    torch.manual_seed(0)
    config, layers = MODELS[request.param]
    made = AutoModelForCausalLM.from_config(config).eval()
    made.layers_of_a_block = layers
    return made


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randint(2, 96, (2, 24), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_a_patched_model_has_the_same_logits(model, tokens, kernel_runs):
    expected = model(tokens).logits
    report = tiercel.patch(model)
    torch.testing.assert_close(model(tokens).logits, expected, rtol=1e-4, atol=1e-5)
    assert report.patched == 2 * model.layers_of_a_block + 1
    assert len(kernel_runs) >= report.patched
    tiercel.unpatch(model)
    assert torch.equal(model(tokens).logits, expected)


def test_generation(model, tokens, kernel_runs):
    arguments = {"max_new_tokens": 6, "do_sample": False, "use_cache": True}
    expected = model.generate(tokens, **arguments)
    tiercel.patch(model)
    assert torch.equal(model.generate(tokens, **arguments), expected)
    assert kernel_runs


def test_a_training_step(model, tokens, kernel_runs):
    def step() -> list[torch.Tensor]:
        model.train()
        model.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    expected = step()
    tiercel.patch(model)
    for mine, theirs in zip(step(), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    assert len(kernel_runs) > 2 * model.layers_of_a_block


@torch.no_grad()
@pytest.mark.parametrize("model", ["llama", "gpt2"], indirect=True)
def test_compiled(model, tokens, kernel_runs):
    expected = model(tokens, use_cache=False).logits
    tiercel.patch(model)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(
        compiled(tokens, use_cache=False).logits, expected, rtol=1e-4, atol=1e-5
    )
    assert kernel_runs


def test_a_patched_model_trains_alike(tokens, tmp_path, kernel_runs):
    from transformers import Trainer, TrainingArguments

    def losses(patched: bool) -> list[float]:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(MODELS["llama"][0])
        if patched:
            tiercel.patch(model)
        arguments = TrainingArguments(
            tmp_path, max_steps=3, per_device_train_batch_size=2, logging_steps=1, use_cpu=True,
            report_to=[], save_strategy="no", disable_tqdm=True, seed=0,
        )  # fmt: skip
        data = [{"input_ids": row, "labels": row} for row in tokens]
        trainer = Trainer(model, arguments, train_dataset=data)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    expected = losses(patched=False)
    assert kernel_runs == []
    assert losses(patched=True) == pytest.approx(expected, rel=1e-4)
    assert kernel_runs


def test_adapters_of_peft_learn_on_packed_weights(tokens, kernel_runs, monkeypatch):
    from peft import LoraConfig, get_peft_model

    plan_for = packed.plan_for  # weights this small are packed for the classical kernel
    monkeypatch.setattr(packed, "plan_for", lambda p: plan_for(replace(p, scheme="classical")))
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(MODELS["llama"][0])
    model = get_peft_model(base, LoraConfig(target_modules=["q_proj", "down_proj"], r=4))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # starts at zero, where the adapter would say nothing
            torch.nn.init.normal_(parameter, std=0.1)

    def step() -> tuple[torch.Tensor, list[torch.Tensor]]:
        model.zero_grad()
        output = model(tokens, labels=tokens)
        output.loss.backward()
        learning = (p.grad.clone() for p in model.parameters() if p.grad is not None)
        return output.logits.detach(), list(learning)

    expected = step()
    report = tiercel.patch(model, pack_weights=True)
    assert kernel_runs == []
    torch.testing.assert_close(step(), expected, rtol=1e-3, atol=1e-5)
    assert report.patched > 15
    assert report.packed_bytes > 0
    assert kernel_runs
    model.merge_adapter()  # writes the weights through .data
    merged = model(tokens).logits
    torch.testing.assert_close(merged, expected[0], rtol=1e-3, atol=1e-4)
