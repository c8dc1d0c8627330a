/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_MESSAGE_H
#define GW_MESSAGE_H

/**
 * @file
 * The request of a call as HTTP for its engine.
 */

#include "call.h"

/**
 * Make the message; @p out is malloc()ed, NULL when no engine gets it.
 * @return 0, -ENOMEM, -EMSGSIZE: the fields are too large for a head, -EINVAL: one is not legal.
 */
int gw_message(const struct gw_call *c, char **out, size_t *len);

#endif
