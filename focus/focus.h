#pragma once

// All that a program needs which loads a model, composes Focus onto it, trains, scores and
// generates. Who wants less includes the parts.
#include "autograd/ops.h"
#include "autograd/tensor.h"
#include "autograd/variable.h"
#include "data/text/batches.h"
#include "data/text/tokenizer.h"
#include "focus/config.h"
#include "focus/focus_model.h"
#include "focus/generation/generator.h"
#include "focus/generation/sampling.h"
#include "focus/train/evaluate.h"
#include "focus/train/focus_io.h"
#include "focus/train/model_io.h"
#include "focus/train/run_config.h"
#include "focus/version.h"
#include "layers/decoder.h"
#include "layers/weights.h"
#include "optim/adamw.h"
#include "optim/training_step.h"
