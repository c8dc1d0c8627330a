/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ERRNO_H
#define KVR_ERRNO_H

/**
 * @file
 * The one error convention: 0 or -errno; a pointer or NULL with errno set; bursts return counts.
 */

#include <errno.h>
#include <stddef.h>

/** Set errno to the positive error @p e and return NULL, for `return kvr_null(ENOMEM)`. */
static inline void *kvr_null(int e)
{
	errno = e;
	return NULL;
}

#endif
