#pragma once

// All that a program needs which loads a model, composes Focus onto it, trains, scores and
// generates. Who wants less includes the parts.
#include "autograd/base/check.h"
#include "autograd/ops.h"
#include "data/tokenizers/tokenizer.h"
#include "data/tokens/batches.h"
#include "focus/adapter.h"
#include "focus/adapters/mechanism.h"
#include "focus/evaluation/attention_spec.h"
#include "focus/evaluation/evaluation.h"
#include "focus/generation/generator.h"
#include "focus/generation/sampling.h"
#include "focus/method/config.h"
#include "focus/method/focus_model.h"
#include "focus/models/model_files.h"
#include "focus/training/session.h"
#include "focus/training/training.h"
#include "focus/version.h"
#include "layers/decoder.h"
#include "layers/weights.h"
#include "optim/adamw.h"
#include "optim/training_step.h"
