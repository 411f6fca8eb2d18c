#pragma once

// All that a program needs which loads a model, composes Focus onto it, trains, scores and
// generates. Who wants less includes the parts.
#include "autograd/check.h"
#include "autograd/ops.h"
#include "data/text/batches.h"
#include "data/text/tokenizer.h"
#include "focus/adapter.h"
#include "focus/config.h"
#include "focus/focus_model.h"
#include "focus/generation/generator.h"
#include "focus/generation/sampling.h"
#include "focus/mechanism.h"
#include "focus/train/attention_spec.h"
#include "focus/train/evaluation.h"
#include "focus/train/model_files.h"
#include "focus/train/session.h"
#include "focus/train/training.h"
#include "focus/version.h"
#include "layers/decoder.h"
#include "layers/weights.h"
#include "optim/adamw.h"
#include "optim/training_step.h"
