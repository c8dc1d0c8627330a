/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_ENDPOINT_H
#define AGENT_ENDPOINT_H

/** @file Endpoints of ZMQ, as texts. Pure; any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Is it ipc://..., or tcp://HOST:PORT with a port from 1 to 65535? */
bool agent_endpoint_valid(const char *text);

/** Of rank @p rank, when @p first is that of rank 0: tcp at the port + rank, others end with
 * ".RANK". */
void agent_endpoint_of(const char *first, uint32_t rank, char *buf, size_t len);

/** @p text with the host of @p engine (http://HOST[:PORT][/...]) in the place of a wildcard. */
void agent_endpoint_reach(const char *text, const char *engine, char *buf, size_t len);

/**
 * Does tcp endpoint @p text lead to @p ours, "ADDRESS:PORT" in numbers, on this machine?
 * @param facing another address of this machine, or "".
 */
bool agent_endpoint_is(const char *text, const char *ours, const char *facing);

#endif
