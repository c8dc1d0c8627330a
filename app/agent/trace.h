/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_TRACE_H
#define AGENT_TRACE_H

/** @file
 * W3C trace context: a span between those of client and engine. Pure; any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AGENT_TRACEPARENT 56u /* bytes of a traceparent, including the terminator */

/**
 * Replace the parent in traceparent @p value by @p span.
 * @param span not 0.
 * @return false: @p value is not a traceparent of version 00.
 */
bool agent_trace_child(const char *value, size_t len, uint64_t span, char out[AGENT_TRACEPARENT]);

#endif
