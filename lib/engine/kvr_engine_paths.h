/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ENGINE_PATHS_H
#define KVR_ENGINE_PATHS_H

/**
 * @file
 * Paths of the engine that requests may name (--paths). Engines have other paths that unload
 * adapters, empty caches or put them to sleep, and every client of the router could reach them.
 * Pure.
 */

#include <stdbool.h>
#include <stddef.h>

/** Return true if @p list is valid: paths that start with '/', separated by commas, each optionally
 * ending with an asterisk, or a single asterisk. */
bool kvr_engine_paths_valid(const char *list);

/**
 * Return true if a request target of @p len bytes is allowed. The part from '?' or '#' on is
 * ignored, the rest is compared byte by byte. "/v1/x*" allows paths with this prefix that continue
 * with letters, digits and `-_~./`, without "//" and without a segment that begins with a dot, so
 * that engines that decode or normalise paths read them alike. "*" allows every path.
 */
bool kvr_engine_path_allowed(const char *list, const char *target, size_t len);

#endif
