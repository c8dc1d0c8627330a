# SPDX-License-Identifier: BSD-3-Clause
"""Models made here, so that no check asks a hub: tiny_model.py vllm|reference DIRECTORY

vllm: a Llama of two layers with random weights, a byte-level tokenizer with a chat template, and in DIRECTORY-lora an adapter of rank 8.
reference: tokenizer and configuration alone, as dynamo.mocker and dynamo.frontend need them.
"""

import json
import os
import random
import sys

TEMPLATE = (
    "{% if reasoning_effort %}<|im_start|>system\nReasoning: {{ reasoning_effort }}<|im_end|>\n{% endif %}"
    "{% if documents %}<|im_start|>documents\n{% for d in documents %}{{ d['title'] }}: {{ d['text'] }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% if tools %}<|im_start|>system\nTools: {% for t in tools %}{{ t | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}{% endif %}")
WORDS = ('the a of to and in is that for on are with as at be this from have or one had by word but not all we when can there use an each which do how if '
         'will up other about out many then them these so some would make like into time has look two more write go see number way could people my than '
         'first water been call its now find long down day did get come made may part cache block router engine canary user system assistant').split()


def make_tokenizer(path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    seeded = random.Random(1)
    text = (' '.join(seeded.choice(WORDS) for _ in range(50)) for _ in range(2000))
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=1000, special_tokens=['<|endoftext|>', '<|im_start|>', '<|im_end|>'],
                                                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token='<|im_end|>', pad_token='<|endoftext|>', bos_token=None, chat_template=TEMPLATE,
                                   model_max_length=8192, clean_up_tokenization_spaces=False)
    fast.save_pretrained(path)
    return len(fast)


def make_weights(path, vocabulary):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                         head_dim=32, max_position_embeddings=8192, tie_word_embeddings=False, initializer_range=0.3, bos_token_id=None, eos_token_id=2,
                         pad_token_id=0, dtype='float32')
    LlamaForCausalLM(config).float().save_pretrained(path, safe_serialization=True)
    return config


def make_adapter(path, config, rank=8):
    """LoRA of q and v in the format of PEFT."""
    import torch
    from safetensors.torch import save_file
    os.makedirs(path, exist_ok=True)
    torch.manual_seed(7)
    tensors = {}
    for layer in range(config.num_hidden_layers):
        for part in ('q_proj', 'v_proj'):
            name = f'base_model.model.model.layers.{layer}.self_attn.{part}.lora_'
            tensors[name + 'A.weight'] = torch.randn(rank, config.hidden_size)
            tensors[name + 'B.weight'] = torch.randn(config.num_attention_heads * config.head_dim, rank)
    save_file(tensors, f'{path}/adapter_model.safetensors')
    with open(f'{path}/adapter_config.json', 'w') as f:
        json.dump(dict(peft_type='LORA', r=rank, lora_alpha=rank, lora_dropout=0.0, bias='none', target_modules=['q_proj', 'v_proj'], task_type='CAUSAL_LM',
                       base_model_name_or_path='tiny', inference_mode=True), f)


def make_vllm(path):
    config = make_weights(path, make_tokenizer(path))
    make_adapter(path + '-lora', config)


def make_reference(path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    os.makedirs(path, exist_ok=True)
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary.update({f'<w{i}>': i for i in range(len(vocabulary), 1000)})
    vocabulary.update({'<s>': 1000, '</s>': 1001, '<unk>': 1002})
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token='<unk>'))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(['<s>', '</s>', '<unk>'])
    tokenizer.save(f'{path}/tokenizer.json')
    for name, content in (
            ('config', dict(architectures=['LlamaForCausalLM'], model_type='llama', hidden_size=64, intermediate_size=128, num_attention_heads=4,
                            num_key_value_heads=4, num_hidden_layers=2, vocab_size=1003, max_position_embeddings=262144, bos_token_id=1000,
                            eos_token_id=1001, torch_dtype='bfloat16', rms_norm_eps=1e-5)),
            ('generation_config', dict(bos_token_id=1000, eos_token_id=1001)),
            ('tokenizer_config', dict(bos_token='<s>', eos_token='</s>', unk_token='<unk>', model_max_length=262144,
                                      tokenizer_class='PreTrainedTokenizerFast',
                                      chat_template="{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"))):
        with open(f'{path}/{name}.json', 'w') as f:
            json.dump(content, f, indent=1)


if __name__ == '__main__':
    dict(vllm=make_vllm, reference=make_reference)[sys.argv[1]](sys.argv[2])
