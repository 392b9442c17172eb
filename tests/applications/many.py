import sys

from transformers import AutoModelForCausalLM, AutoTokenizer, ContinuousBatchingConfig

model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
prompts = [tokenizer(text)["input_ids"] for text in ("one two three", "four")]
model.generation_config.update(max_new_tokens=4, do_sample=False, eos_token_id=-1)
config = ContinuousBatchingConfig(page_size=16, num_blocks=16, max_batch_tokens=64)
model.generate_batch(inputs=prompts, generation_config=model.generation_config, continuous_batching_config=config)
