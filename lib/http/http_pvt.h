/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HTTP_PVT_H
#define KVR_HTTP_PVT_H

/**
 * @file
 * What bytes may stand where in a head (RFC 9110, section 5): for reading and for writing.
 */

#include <stdbool.h>
#include <stddef.h>

/** A token: what names and methods are made of. */
bool kvr_http__is_token(const char *p, size_t n);

/** What a field's value may have: no control but the tab. */
bool kvr_http__is_value(const char *p, size_t n);

#endif
