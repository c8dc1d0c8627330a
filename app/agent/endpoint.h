/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_ENDPOINT_H
#define AGENT_ENDPOINT_H

/** @file
 * ZMQ endpoints as text. Pure; any thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Return true for ipc://..., and for tcp://HOST:PORT with a port from 1 to 65535. */
bool agent_endpoint_valid(const char *text);

/** Endpoint of rank @p rank, if @p first is that of rank 0: for tcp the port + rank, otherwise with
 * the suffix ".RANK". */
void agent_endpoint_of(const char *first, uint32_t rank, char *buf, size_t len);

/** Replace a wildcard host in @p text by the host of @p engine (http://HOST[:PORT][/...]). */
void agent_endpoint_reach(const char *text, const char *engine, char *buf, size_t len);

/**
 * Return true if tcp endpoint @p text leads to @p ours, a numeric "ADDRESS:PORT" on this machine.
 * @param facing another address of this machine, or "".
 */
bool agent_endpoint_is(const char *text, const char *ours, const char *facing);

#endif
