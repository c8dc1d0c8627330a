/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_PATHS_H
#define AGENT_PATHS_H

/**
 * @file
 * Which paths of the engine requests may name (--paths): engines also have some that unload
 * adapters, empty caches or put them to sleep, and whoever reaches the router reaches these. Pure.
 */

#include <stdbool.h>
#include <stddef.h>

/** Is @p list one: paths from '/' on, separated by commas, an asterisk at their end, or alone? */
bool agent_paths_valid(const char *list);

/**
 * May a request target of @p len bytes be asked for? What stands behind '?' or '#' does not count,
 * the rest is compared byte for byte. "/v1/x*" allows what begins so and goes on with letters,
 * digits and `-_~./`, neither "//" nor a segment that begins with a dot: an engine that decodes or
 * shortens paths finds the same as it says. "*" allows anything.
 */
bool agent_path_allowed(const char *list, const char *target, size_t len);

#endif
