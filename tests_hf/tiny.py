"""Tiny models of every architecture, with random biases and gains."""

import torch
import transformers

SMALL = dict(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=20,
)
GROUPED = dict(SMALL, num_key_value_heads=2)
IMAGE = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    image_size=12,
    patch_size=4,
)
OPT = dict(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=4,
    ffn_dim=24,
    max_position_embeddings=20,
)
CONFIGS = {
    "bert": ("BertConfig", SMALL),
    "bert-relu": ("BertConfig", dict(SMALL, hidden_act="relu", layer_norm_eps=1e-3)),
    "roberta": ("RobertaConfig", SMALL),
    "distilbert": (
        "DistilBertConfig",
        dict(
            vocab_size=50, dim=16, n_layers=3, n_heads=4, hidden_dim=24, max_position_embeddings=20
        ),
    ),
    "albert": (
        "AlbertConfig",
        dict(SMALL, embedding_size=8, num_hidden_layers=4, num_hidden_groups=2),
    ),
    "albert-inner": ("AlbertConfig", dict(SMALL, embedding_size=8, inner_group_num=2)),
    "gpt2": (
        "GPT2Config",
        dict(
            vocab_size=50,
            n_embd=16,
            n_layer=3,
            n_head=4,
            n_positions=20,
            bos_token_id=1,
            eos_token_id=1,
        ),
    ),
    "gpt2-inverse": (
        "GPT2Config",
        dict(
            vocab_size=50,
            n_embd=16,
            n_layer=3,
            n_head=4,
            n_positions=20,
            bos_token_id=1,
            eos_token_id=1,
            scale_attn_by_inverse_layer_idx=True,
            attn_implementation="eager",  # transformers 4 forgets the scale in the others
        ),
    ),
    "opt": ("OPTConfig", OPT),
    "opt-post": ("OPTConfig", dict(OPT, word_embed_proj_dim=8, do_layer_norm_before=False)),
    "llama": ("LlamaConfig", dict(GROUPED, attention_bias=True, mlp_bias=True)),
    "mistral": ("MistralConfig", dict(GROUPED, sliding_window=4)),
    "qwen2": ("Qwen2Config", GROUPED),
    "qwen3": ("Qwen3Config", dict(GROUPED, head_dim=8)),
    "vit": ("ViTConfig", IMAGE),
    "xlnet": (
        "XLNetConfig",
        dict(vocab_size=50, d_model=16, n_layer=3, n_head=4, d_inner=24),
    ),
}


def make(name, dtype=torch.float64, seed=0):
    """A model whose every parameter is random: no bias is zero and no gain is one."""
    kind, arguments = CONFIGS[name]
    torch.manual_seed(seed)
    model = transformers.AutoModel.from_config(getattr(transformers, kind)(**arguments))
    with torch.no_grad():
        for key, value in model.named_parameters():
            gain = value.ndim == 1 and key.endswith("weight")
            value.copy_(torch.randn_like(value) * 0.3 + (1.0 if gain else 0.0))
    return model.eval().to(dtype)
