#pragma once

#include "layers/family.h"

namespace focus {

const Family& gpt2_family();
const Family& llama_family();
const Family& mistral_family();
const Family& qwen2_family();
const Family& qwen3_family();
const Family& olmo2_family();
const Family& gemma2_family();
const Family& gemma3_family();
const Family& gpt_neox_family();
const Family& phi3_family();
const Family& olmo3_family();
const Family& granite_family();
const Family& smollm3_family();

}  // namespace focus
