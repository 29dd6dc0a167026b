id, tenant_id, app_id, user_id, role, name, rate_limit, created_at, expires_at, revoked_at
