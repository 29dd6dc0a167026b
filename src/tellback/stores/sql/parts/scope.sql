tenant_id = :tenant_id AND app_id = :app_id AND user_id = :user_id
