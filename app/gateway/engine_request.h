/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ENGINE_REQUEST_H
#define GW_ENGINE_REQUEST_H

/**
 * @file
 * Content of a ROUTE: the HTTP request for the engine, and the hashes of the prompt for the router.
 */

#include "call.h"

/**
 * Create the message; @p out is malloc()ed, NULL if no engine receives it.
 * @return 0, -ENOMEM, -EMSGSIZE: too many fields, -EINVAL: an invalid field.
 */
int gw_engine_request(const struct gw_call *call, char **out, size_t *len);

/**
 * Sequence hashes of the prompt's full blocks, an eighth of the size of its tokens.
 * @param n their number; 0: none, or no memory: only load decides then
 * @return memory for free(); NULL: none.
 */
uint64_t *gw_request_hashes(const struct gw_call *call, const struct gw_model *m, uint32_t *n);

#endif
