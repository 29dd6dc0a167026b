{tenant_app_filter}
AND (CAST(:user AS TEXT) IS NULL OR user_id = :user)
