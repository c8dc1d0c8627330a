/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EX_LANGUAGE_H
#define EX_LANGUAGE_H

/** @file The language of scenarios: the operations, and which fields of what kind each has. */

#include "world.h"

/** Check the members of a line, and those of their members; `op` is taken away. @return the
 * operation, or NULL with the problem noted. */
ex_op_fn *ex_language_check(json_t *obj, struct ex_problem *p);

#endif
