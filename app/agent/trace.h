/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_TRACE_H
#define AGENT_TRACE_H

/** @file W3C trace context: a span between a client's and the engine's. Pure; any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_TRACEPARENT 56u /* bytes of a traceparent, its zero byte included */

/**
 * The traceparent @p value with @p span in the place of its parent.
 * @param span not 0.
 * @return false: @p value is no traceparent of version 00.
 */
bool agent_trace_child(const char *value, size_t len, uint64_t span, char out[AGENT_TRACEPARENT]);

#endif
